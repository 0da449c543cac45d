"""Online aggregation of the forecasts of several experts, and intervals that adapt to the aggregate's errors."""
