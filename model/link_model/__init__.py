"""The model of one link: lag windows, historical profile, detector health, training, forecasts."""
