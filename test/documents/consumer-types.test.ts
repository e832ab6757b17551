import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import ts from "typescript";
import { emitTypes, ROOT } from "./emitted-types.ts";

const FORMAT: ts.FormatDiagnosticsHost = {
  getCanonicalFileName: (name) => name,
  getCurrentDirectory: () => ROOT,
  getNewLine: () => "\n",
};

const libraries = (...names: string[]) => names.map((name) => `lib.${name}.d.ts`);

/** Programs that use the package, compiled against its declarations with the real compiler. */
describe("the types of the package, seen by its users", { timeout: 600_000 }, () => {
  let directory: string;
  before(() => {
    directory = realpathSync(mkdtempSync(join(tmpdir(), "procwire-consumer-")));
    mkdirSync(join(directory, "node_modules/procwire"), { recursive: true });
    emitTypes(join(directory, "node_modules/procwire"));
  });
  after(() => rmSync(directory, { recursive: true, force: true, maxRetries: 10 }));

  /** Compiles a program strictly, and checks it and all declarations of the package. Other packages are not checked. */
  const check = (source: string, options: ts.CompilerOptions) => {
    writeFileSync(join(directory, "package.json"), '{ "type": "module" }');
    writeFileSync(join(directory, "program.ts"), source);
    const program = ts.createProgram([join(directory, "program.ts")], {
      module: ts.ModuleKind.NodeNext,
      target: ts.ScriptTarget.ES2024,
      strict: true,
      exactOptionalPropertyTypes: true,
      noEmit: true,
      typeRoots: [join(directory, "node_modules/@types")],
      ...options,
    });
    const checked = program.getSourceFiles().filter(({ fileName }) => fileName.startsWith(directory));
    assert.ok(checked.length > 10, "the declarations of the package are part of the program");
    const problems = [
      ...program.getOptionsDiagnostics(),
      ...program.getGlobalDiagnostics(),
      ...checked.flatMap((file) => ts.getPreEmitDiagnostics(program, file)),
    ];
    assert.equal(ts.formatDiagnostics(problems, FORMAT), "");
  };

  test("compile a program that uses procwire/client without the types of Node", () => {
    check(
      `
      import { connectFromBrowser, type ExecEvent, ExecServerError, lines, type MethodName, run } from "procwire/client";
      import type { InitializeParams, ParamsOf, ProcessListing, RunResult } from "procwire/client";

      await using client = await connectFromBrowser({ url: "ws://127.0.0.1:7070" });
      const { stdout }: RunResult = await run(client.backend, ["date"]);
      const bytes: Uint8Array = (await run(client.backend, ["date"], { encoding: "buffer" })).stdout;
      const child = await client.start({ processId: "1", argv: ["date"], cwd: "/", env: {}, tty: false });
      for await (const line of lines(child)) line.toUpperCase();
      const last: ExecEvent[] = [];
      for await (const event of child.events({ signal: AbortSignal.timeout(1000) })) last.push(event);
      const listed: ProcessListing[] = await client.list();
      const method: MethodName = "process/start";
      const hello: InitializeParams & ParamsOf<"initialize"> = { clientName: "page" };
      await client.files.readText("/etc/hostname").catch((error: unknown) => {
        if (error instanceof ExecServerError) return [error.code, error.path, error.rpcCode, error.method];
      });
      export { bytes, hello, last, listed, method, stdout };
      `,
      { types: [], lib: libraries("es2024", "dom", "dom.asynciterable", "esnext.disposable") },
    );
  });

  test("compile a Node program that uses the main entry", () => {
    for (const name of ["@types", "undici-types", "@modelcontextprotocol"])
      symlinkSync(join(ROOT, "node_modules", name), join(directory, "node_modules", name));
    check(
      `
      import { type CommandError, Environment, ExecServerError, type SpawnedProcess } from "procwire";
      import { agentsTools } from "procwire/agents";
      import { aiTools } from "procwire/ai";
      import { createLocalBackend, createUnifiedExec } from "procwire";

      await using environment = await Environment.create(null);
      const text: string = (await environment.run(["env"], { env: process.env })).stdout;
      const bytes: Uint8Array = (await environment.run("date", { encoding: "buffer" })).stdout;
      await using child: SpawnedProcess = await environment.spawn(["cat"], { signal: AbortSignal.timeout(1000) });
      await child.pipe(process.stdout, { end: false });
      await child.pipe(new WritableStream<Uint8Array>());
      await child.pipe(await environment.spawn("sort"));
      const why = (error: CommandError | ExecServerError): string => error.code;
      await using backend = createLocalBackend();
      await using unified = createUnifiedExec({ backend, cwd: "/" });
      const forAgents = agentsTools(unified.tools, (options) => options.name);
      const forAi = aiTools(unified.tools, ({ description }) => description);
      export { bytes, forAgents, forAi, text, why };
      `,
      { types: ["node"], lib: libraries("es2024", "esnext.disposable") },
    );
  });
});
