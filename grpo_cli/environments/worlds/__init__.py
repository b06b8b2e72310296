"""The worlds that are shipped: procedural, offline, a file each with its rows (`tasks:NAME`) and its class (`environments:NAME`)."""
