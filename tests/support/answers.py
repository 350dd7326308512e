"""What answers over HTTP, or why nobody does."""

import httpx


def status_and_text(http: httpx.Client, path: str) -> tuple[int, str]:
    """Of a GET; (0, why) if nobody answers."""
    try:
        answer = http.get(path)
    except httpx.TransportError as error:
        return 0, repr(error)
    return answer.status_code, answer.text
