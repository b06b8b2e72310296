"""The worker's side of `python`: find a function, bind its arguments in the caller's convention, read what it returns."""
