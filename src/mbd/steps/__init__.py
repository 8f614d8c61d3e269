"""The steps: each a plain function from folders to a folder, with interfaces for command line, DVC and Kubeflow."""
