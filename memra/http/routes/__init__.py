"""The routes: one module per subject, each adding its paths to the application."""
