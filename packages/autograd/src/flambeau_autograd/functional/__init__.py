"""Recording a graph functionally: values, views, writes."""
