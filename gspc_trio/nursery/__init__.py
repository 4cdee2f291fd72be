"""All helpers over trio and trio-websocket, in two folders; no words of our domain."""
