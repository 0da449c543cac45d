"""The model of one link: lag windows, profile, detector health, training, forecasts."""
