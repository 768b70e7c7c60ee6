"""A Flask site that submits tasks and lets its pages follow them.

pip install tidegate flask
flask --app app:site run                 # one terminal
tidegate worker app:queue                # another one
curl -si localhost:5000/thumbnails -d 'picture=ada.png'
"""

from flask import Flask, request

from tidegate import Tidegate
from tidegate.integrations.flask import accepted, init_app, tasks_blueprint

queue = Tidegate()


@queue.task(queue="pictures")
def thumbnail(picture: str, width: int = 200) -> str:
    return f"{picture} at {width} pixels"


site = Flask(__name__)
init_app(site, queue)
# Everybody may see every thumbnail. Ask your session here, and label tasks with their owner.
site.register_blueprint(tasks_blueprint(lambda row: row.function == thumbnail.spec.name), url_prefix="/tasks")


@site.post("/thumbnails")
def make_thumbnail() -> tuple[dict[str, str], int, dict[str, str]]:
    handle = thumbnail.using(key=request.headers.get("Idempotency-Key")).enqueue_sync(request.form["picture"])
    return accepted(handle)
