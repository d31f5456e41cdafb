"""`tf-savedmodel` and `tf-trt`."""
