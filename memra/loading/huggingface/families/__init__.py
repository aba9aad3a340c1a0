"""What each family's directories call their settings and tensors; one module a family."""
