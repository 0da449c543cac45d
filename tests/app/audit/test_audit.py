def test_every_admin_call_is_there_refused_ones_too(client, put_link):
    put_link("A")
    made = client.post("/v1/admin/keys", json={"name": "reader", "scopes": ["read"]}).json()
    refused = client.put("/v1/links/B", json={}, headers={"X-API-Key": made["key"]})
    assert refused.status_code == 403
    client.get("/v1/links")  # needs no admin
    calls = client.get("/v1/admin/audit").json()["calls"]
    assert [(call["method"], call["path"], call["status"]) for call in calls] == [
        ("PUT", "/v1/links/B", 403),
        ("POST", "/v1/admin/keys", 201),
        ("PUT", "/v1/links/A", 201),
    ]
    assert calls[0]["key_name"] == "reader"
    assert calls[1]["key_id"] == "environment"
    assert calls[0]["request_id"] == refused.headers["x-request-id"]


def test_pages_hold_together(client, put_link):
    for name in "ABCDE":
        put_link(name)
    first = client.get("/v1/admin/audit", params={"limit": 3}).json()
    rest = client.get("/v1/admin/audit", params={"limit": 3, "cursor": first["next_cursor"]}).json()
    paths = [call["path"] for call in first["calls"] + rest["calls"]]
    assert paths == [f"/v1/links/{name}" for name in "EDCBA"]


def test_a_call_whose_body_cannot_be_read_is_there(client):
    refused = client.post("/v1/admin/retrain", content=b"{half", headers={"Content-Type": "application/json"})
    assert refused.status_code == 422
    calls = client.get("/v1/admin/audit").json()["calls"]
    assert [(call["path"], call["status"]) for call in calls] == [("/v1/admin/retrain", 422)]


def test_a_method_of_any_length_is_recorded(client):
    assert client.request("UNSUBSCRIBE", "/v1/admin/keys", content=b"{}").status_code == 405
    [newest, *_] = client.get("/v1/admin/audit").json()["calls"]
    assert (newest["method"], newest["status"]) == ("UNSUBSCR", 405)
