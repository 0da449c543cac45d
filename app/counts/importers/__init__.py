"""Files of counts in any known layout: read, checked row by row, and summed into slots."""
