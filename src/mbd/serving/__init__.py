"""The HTTP interface; inference by the Open Inference Protocol is in `mbd.serving.inference`."""
