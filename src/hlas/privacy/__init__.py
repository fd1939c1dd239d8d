"""Export, erase and anonymise visitors' data; retention."""
