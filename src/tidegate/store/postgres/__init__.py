"""The store on PostgreSQL: any number of machines, each method in a module, its SQL beside it."""
