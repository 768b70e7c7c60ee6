from django.db import models


class Order(models.Model):
    customer = models.TextField()
    state = models.TextField(default="new")
