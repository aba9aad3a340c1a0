"""What the owner of a server declares of its models: the file of model metadata, checked before any model is loaded."""
