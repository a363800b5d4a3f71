"""Another app of the site, which no module of the first imports."""
