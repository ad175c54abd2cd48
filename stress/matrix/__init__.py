"""Every named fault against every detector, on an idle pool and on a loaded one, with its clean twin."""
