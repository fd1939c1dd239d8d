"""Files for browsers: the widget, the console and the demo page."""
