"""OpenAPI documents: the operations of one, each as a definition that stands alone."""
