"""The baseline of the load test: a bare handler around a scikit-learn model, without storage."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import uvicorn
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from sklearn.linear_model import LogisticRegression

from benchmarks.serve_load import ARROW, N_CLASSES

app = FastAPI()
rng = np.random.default_rng(0)
rows = rng.normal(size=(1000, N_CLASSES))
model = LogisticRegression().fit(rows, (rows + rng.gumbel(size=rows.shape)).argmax(axis=1))


class Rows(BaseModel):
    """The body of a request."""

    logits: list[list[float]]


@app.post("/json")
async def predict(body: Rows) -> dict[str, list[list[float]]]:
    """Return the probabilities of some rows."""
    return {"probabilities": model.predict_proba(np.array(body.logits)).tolist()}


@app.post("/arrow")
async def predict_many(request: Request) -> Response:
    """Return the probabilities of many rows."""
    table = pa.ipc.open_stream(await request.body()).read_all()
    column = table["logits"].combine_chunks()
    found = model.predict_proba(column.flatten().to_numpy().reshape(len(column), -1))
    answer = pa.table({"p": pa.FixedSizeListArray.from_arrays(found.reshape(-1), found.shape[1])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, answer.schema) as writer:
        writer.write_table(answer)
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW)


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False)
