"""What more data does to doubt: the noise stays, ignorance shrinks."""
