"""What others see of a job: one JSON document, the view, from which the page and metrics are drawn."""
