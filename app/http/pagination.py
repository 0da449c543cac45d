"""Pages of a long answer: the Link header (RFC 8288) that leads to the next one."""

from __future__ import annotations

from fastapi import Request


def next_page(request: Request, next_cursor: str | None) -> dict[str, str]:
    """Return the header that leads to the next page, relative to this one; none at the end."""
    if next_cursor is None:
        return {}
    return {"Link": f'<?{request.url.include_query_params(cursor=next_cursor).query}>; rel="next"'}
