"""What runs inside a Kubeflow task: verified artifacts in, a step, verified artifacts out. Without kfp itself."""
