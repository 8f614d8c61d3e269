"""What runs inside a Kubeflow step: paths of artifacts in, an `mbd` command, artifacts out. Without kfp itself."""
