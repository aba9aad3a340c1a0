"""The gated delta rule: a recurrent layer with a matrix as its state."""
