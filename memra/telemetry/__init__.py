"""Every span, metric and attribute by name; OpenTelemetry is known here and in the actors' base alone."""
