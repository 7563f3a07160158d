"""Other libraries' interfaces over fitted estimators; each module needs the package that it is named after."""
