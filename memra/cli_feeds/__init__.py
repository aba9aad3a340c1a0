"""`memra feeds`: what marketplaces are told of the models, without a server."""
