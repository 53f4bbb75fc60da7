"""What a page of the dashboard, and a route of the service, costs the database when much lies behind it."""
