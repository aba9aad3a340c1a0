"""`memra bench`: how fast a model runs here, alone, beside another engine, and served."""
