"""`mbd deploy`: what a namespace beside Kubeflow needs, from typed values, and what a cluster lacks of it."""
