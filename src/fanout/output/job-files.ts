import path from "node:path";
import { OutputDirectory } from "../../files/output-directory.ts";
import { OutputFile } from "../../files/output-file.ts";
import type { JobRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import { type ExportOptions, exportErrors, exportResults } from "./export-results.ts";
import { openOutput } from "./write-table.ts";

/** The output of a run and the job directory, opened before the first row runs a command. */
export class JobFiles implements AsyncDisposable {
  readonly directory: OutputDirectory;
  readonly #results: OutputFile;
  readonly #errors: OutputFile;
  readonly #options: ExportOptions | undefined;
  readonly #opened: AsyncDisposableStack;

  private constructor(
    files: { directory: OutputDirectory; results: OutputFile; errors: OutputFile },
    options: ExportOptions | undefined,
    opened: AsyncDisposableStack,
  ) {
    this.directory = files.directory;
    this.#results = files.results;
    this.#errors = files.errors;
    this.#options = options;
    this.#opened = opened;
  }

  static async open(outputPath: string, directory: string, options: ExportOptions | undefined): Promise<JobFiles> {
    await using stack = new AsyncDisposableStack();
    const files = {
      directory: stack.use(OutputDirectory.open(directory, { make: true })),
      results: stack.use(await openOutput(outputPath, options?.judgeDirectory)),
      errors: stack.use(await OutputFile.open(path.join(directory, "errors.csv"))),
    };
    return new JobFiles(files, options, stack.move());
  }

  /**
   * Writes the results, and the failures if there are any. Returns the path of the failures, or null. If the files
   * cannot be written, the ledger still has all data.
   */
  async write(ledger: JobLedger, job: JobRecord): Promise<string | null> {
    await exportResults(ledger, job, this.#results, this.#options);
    return (await exportErrors(ledger, job, this.#errors)) > 0 ? this.#errors.path : null;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#opened.disposeAsync();
  }
}
