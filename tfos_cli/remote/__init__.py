"""Jobs in cluster deploy mode, seen from the machine that submits them: where their record is, who is asked, what comes."""
