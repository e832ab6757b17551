/** Operations common to both kinds of batch APIs. */

import type { JsonObject } from "../../base/json-fields.ts";
import type { ModelRequest } from "../api/model-api.ts";
import type { BatchesOptions, BatchResult, BatchState } from "./batch-api.ts";
import { BatchHttp } from "./batch-http.ts";

export abstract class HttpBatches {
  protected readonly options: BatchesOptions;
  protected readonly http: BatchHttp;
  /** URL path of the provider's batches. */
  protected abstract readonly path: string;

  constructor(options: BatchesOptions) {
    this.options = options;
    this.http = new BatchHttp(options);
  }

  protected abstract parseState(batch: JsonObject): BatchState;
  /** Returns the URL path of a file of results. */
  protected abstract resultsPath(fileId: string): string;
  /** Parses a line of a file of results. */
  protected abstract parseResult(line: JsonObject, request: ModelRequest): BatchResult;

  protected pathOf(batchId: string): string {
    return `${this.path}/${encodeURIComponent(batchId)}`;
  }

  async get(batchId: string, signal: AbortSignal): Promise<BatchState> {
    return this.parseState(await this.http.json("GET", this.pathOf(batchId), signal));
  }

  async cancel(batchId: string, signal: AbortSignal): Promise<void> {
    await this.http.json("POST", `${this.pathOf(batchId)}/cancel`, signal, {});
  }

  async *readResults(
    batch: BatchState,
    request: ModelRequest,
    signal: AbortSignal,
  ): AsyncGenerator<BatchResult, void, undefined> {
    for (const fileId of batch.fileIds) {
      for await (const line of this.http.lines(this.resultsPath(fileId), signal)) yield this.parseResult(line, request);
    }
  }
}
