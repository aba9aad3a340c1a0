"""One mailbox each: ingress, admission, templating, gpu_worker, lifecycle; shells around the rooms."""
