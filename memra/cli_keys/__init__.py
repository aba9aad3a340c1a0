"""`memra keys`: makes, disables and lists the keys of a keyring file."""
