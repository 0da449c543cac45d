"""Code that routes share: problems, media types, paging, streams, sessions."""
