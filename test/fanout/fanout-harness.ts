import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Readable } from "node:stream";
import { parse } from "csv-parse/sync";
import { createHttpModelApi } from "../../src/agent/api/http-model-api.ts";
import type { RetryPolicy } from "../../src/agent/api/model-caller.ts";
import { responsesDialect } from "../../src/agent/api/responses-dialect.ts";
import type { TableFormat, TableParseOptions } from "../../src/fanout/input/table.ts";
import { prepareInput } from "../../src/fanout/input/table-input.ts";
import type { ItemRecord } from "../../src/fanout/job.ts";
import { SqliteStore } from "../../src/fanout/ledger/sqlite/sqlite-store.ts";
import type { JobEnd } from "../../src/fanout/output/job-listener.ts";
import { createRowCaller } from "../../src/fanout/run/row-resources.ts";
import { type StartJobOptions, startOrResumeJob } from "../../src/fanout/run/start-job.ts";
import { type MockHandler, type MockResponses, startMockResponses } from "../support/models/mock-responses.ts";

export interface FanoutRun extends Partial<Omit<StartJobOptions, "task" | "settings">> {
  table?: string;
  format?: TableFormat;
  parseOptions?: TableParseOptions;
  task?: Partial<StartJobOptions["task"]>;
  settings?: Partial<StartJobOptions["settings"]>;
  requestsPerMinute?: number;
  /** Default: the product's own retry policy. */
  retry?: RetryPolicy;
}

export type OutputRow = Record<string, string>;

/** A directory, a scripted model, and the real fan-out between them. */
export class FanoutHarness implements AsyncDisposable {
  readonly directory: string;
  readonly mock: MockResponses;
  /** Rows as the listener got them while the job ran, over all runs. */
  readonly finishedRows: ItemRecord[] = [];

  private constructor(directory: string, mock: MockResponses) {
    this.directory = directory;
    this.mock = mock;
  }

  static async open(handler: MockHandler): Promise<FanoutHarness> {
    const directory = await mkdtemp(path.join(tmpdir(), "procwire-fanout-"));
    return new FanoutHarness(directory, await startMockResponses(handler));
  }

  get jobsHome(): string {
    return path.join(this.directory, "jobs");
  }

  get outputPath(): string {
    return path.join(this.directory, "out.csv");
  }

  /** Item ids in the order of their requests, one per request. */
  get asked(): string[] {
    return this.mock.requests.map((request) => request.item?.itemId ?? "?");
  }

  async run(run: FanoutRun = {}): Promise<JobEnd> {
    const { table = catTable(3), format, parseOptions, task, settings, requestsPerMinute, retry, ...rest } = run;
    const file = path.join(this.directory, "in.csv");
    await writeFile(file, table);
    const api = createHttpModelApi(responsesDialect, { baseUrl: this.mock.url, apiKey: "k" });
    const concurrency = rest.concurrency ?? 4;
    await using input = await prepareInput({
      input: file,
      cwd: this.directory,
      stdin: Readable.from([]),
      spoolDirectory: this.jobsHome,
      format,
      parseOptions,
    });
    try {
      return await startOrResumeJob({
        store: new SqliteStore(this.jobsHome),
        jobsHome: this.jobsHome,
        input,
        task: {
          instruction: "Write about {name}.",
          schema: null,
          model: "m",
          reasoningEffort: null,
          tools: "none",
          idColumn: null,
          ...task,
        },
        settings: { maxAttempts: 3, rowTimeoutMs: 60_000, rowLimit: null, ...settings },
        outputPath: this.outputPath,
        ...createRowCaller(api, { width: concurrency, requestsPerMinute }, retry ? { retry } : {}),
        signal: new AbortController().signal,
        listener: { row: (item) => this.finishedRows.push(item) },
        ...rest,
        concurrency,
      });
    } finally {
      api.close();
    }
  }

  async output(): Promise<OutputRow[]> {
    return parse(await readFile(this.outputPath, "utf8"), { columns: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.mock.close();
    await rm(this.directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

export function catTable(count: number): string {
  return `name\n${Array.from({ length: count }, (_, index) => `cat_${index + 1}\n`).join("")}`;
}
