"""The shop's two addresses."""

from django.urls import path

from shop import views

urlpatterns = [path("orders", views.place_order), path("totals", views.totals)]
