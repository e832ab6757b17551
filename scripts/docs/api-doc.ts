/**
 * `npm run api-doc`: writes docs/api.md, the reference of all exported names, from the types and their comments.
 * `npm run check` fails if the file is outdated.
 */
import { writeFileSync } from "node:fs";
import ts from "typescript";

export const DOCUMENT = "docs/api.md";
export const MAX_PUBLIC_NAMES = 100;

/** All names that `procwire` exports, by task. */
export const API_GROUPS: Readonly<Record<string, readonly string[]>> = {
  Environments: [
    ...["Environment", "EnvironmentOptions", "EnvironmentRunOptions", "SpawnOptions", "SpawnedProcess"],
    ...["CommandError", "readEnvironmentsToml"],
  ],
  Processes: [
    ...["run", "RunOptions", "RunResult", "lines", "waitFor", "communicate", "ExecBackend", "ExecProcess"],
    ...["StartParams", "StartedExecProcess", "ProcessId", "ProcessListing", "ProcessLimits", "Lifetime"],
    ...["ExecEvent", "ExecProcessEvent", "OutputStream", "ExitStatus", "ExitReason", "ReadResponse"],
    ...["WaitResult", "WriteStatus", "TerminalSize", "TerminateMode"],
  ],
  Client: [
    ...["ExecServerClient", "WebSocketClientOptions", "ConnectionState", "ReconnectPolicy", "RemoteProcess"],
    ...["AttachedProcess", "AttachOptions", "RemoteFiles", "spawnLocalExecServer", "SpawnedExecServer"],
    "ExecServerLaunchCommand",
  ],
  "Files and ports": [
    ...[
      "copyFiles",
      "CopyResult",
      "forwardPort",
      "forwardPortBack",
      "forwardSocks",
      "ForwardPortOptions",
      "ForwardedPort",
    ],
  ],
  Errors: ["ExecServerError", "DisconnectedError", "RequestError", "TimeoutError"],
  Servers: [
    ...["ExecServer", "ServerConfig", "createLocalHost", "CreateLocalHostOptions", "createLocalBackend"],
    ...["listen", "ListenOptions", "ListeningServer", "ExecServerTransport", "ExecServerTransportParseError"],
    ...["DEFAULT_LISTEN_URL", "runMain", "runMainWithTransport", "RunMainOptions"],
  ],
  "Tools for models": [
    ...["createUnifiedExec", "UnifiedExec", "UnifiedExecOptions", "UnifiedExecEvent", "Tool", "ToolOutput"],
    ...["toolDefinitions", "serveMcp", "availableSandboxes", "ApprovalPolicy", "ApprovalRequest"],
    ...["ApprovalAnswer", "askCaller", "askOnTerminal", "neverAsk", "loadRulesFile"],
  ],
  "Versions and v0 types": [
    ...["VERSION", "PROTOCOL_VERSION", "ExecServerClientConnectOptions", "RemoteExecServerConnectArgs"],
    ...["ExecServerEvent", "ExecServerOutput", "ExecExitedNotification", "ExecOutputDeltaNotification"],
    ...["ExecOutputStream", "ExecParams", "ExecResponse", "InitializeParams", "InitializeResponse"],
    ...["TerminateParams", "TerminateResponse", "WriteParams", "WriteResponse"],
  ],
};

/** The names that `procwire/client` exports in addition, by task. */
export const CLIENT_GROUPS: Readonly<Record<string, readonly string[]>> = {
  "Connect from a browser": [
    ...["connectFromBrowser", "BrowserClientOptions", "ExecServerClient", "ExecServerClientOptions", "CallOptions"],
    ...["EnvironmentInfo", "Trace", "Extension"],
  ],
  "Types of processes": [
    ...["RemoteBackend", "EnvPolicy", "SecretFilter", "SecretGuard", "SandboxType", "SandboxScope", "LimitName"],
    ...["ListOptions", "PersistentOwner", "TtyState", "ProcessTree", "TreeEntry", "TreeUsage", "TerminateResult"],
    ...["CloseStdinStatus", "ProcessStatus", "KillOptions", "DEFAULT_TERMINAL_SIZE", "ProcessConnections"],
    ...[
      "NetworkProxyConfig",
      "NetworkPolicy",
      "NetworkRequest",
      "AskConsole",
      "NetworkAnswer",
      "UserAnswer",
      "NetworkDecision",
      "NetworkConnection",
    ],
  ],
  "Types of output and input": [
    ...["EventsOptions", "EventLogLimits", "OutputChunk", "ProcessOutputChunk", "Gap", "ReadParams", "ReadResult"],
    ...["Snapshot", "LinesOptions", "StreamOptions", "WaitForOptions", "Match", "WaitParams", "WaitCondition"],
    ...["CollectOptions", "CollectedOutput", "CommunicateResult", "WriteOptions", "DirectInput", "InputHistory"],
    ...["InputData", "InputEntry", "WatchReceiver"],
  ],
  "Types of attachments and share links": [
    ...["AttachRole", "SizeChange", "SizeHistory", "TerminalScreen", "ShareOptions", "ShareResult", "ShareEntry"],
  ],
  "Types of files": [
    ...["RemoteFile", "DirectoryEntry", "FileMetadata", "MetadataOptions", "CreateDirectoryOptions", "RemoveOptions"],
    ...[
      "CopyOptions",
      "ChecksumOptions",
      "CommitOptions",
      "AttributeOptions",
      "PutContent",
      "ScanOptions",
      "PathScan",
      "ScannedEntry",
    ],
    ...[
      "WalkOptions",
      "WalkResult",
      "CopyEndpoint",
      "CopyDestination",
      "CopyFilesOptions",
      "CopyProblem",
      "CopyTotals",
    ],
  ],
  "Types of HTTP requests and ports": [
    ...[
      "RemoteHttp",
      "HttpRequest",
      "HttpResponse",
      "RemoteForwards",
      "RemoteListener",
      "ForwardAddress",
      "ForwardedPorts",
      "Family",
    ],
    ...["ByteStream", "ByteStreamEvents"],
  ],
  "Types of errors": [
    ...["ExecServerErrorCode", "SystemErrorCode", "ExecServerErrorDetails", "ErrorReason", "RequestErrorOptions"],
    "WireError",
  ],
  "Types of the protocol": [
    ...[
      "MethodName",
      "ParamsOf",
      "ResultOf",
      "ServerNotification",
      "ServerNotificationName",
      "ServerNotificationParams",
      "ServerRequest",
      "ServerRequestResult",
      "HandleServerRequest",
    ],
    ...["ProtocolVersion", "ProtocolCallOptions", "ResendPolicy", "RequestId", "Message", "ChunkedMessage"],
  ],
  "Types of transports": [
    ...["Connection", "ConnectionEvent", "WebSocketLike", "BytesDecoder", "InProcessServer", "InProcessClient"],
    ...["InProcessConnection", "ByteSource", "BinaryBlocks", "Clock", "Timer", "earliestEndMs"],
  ],
};

const ENTRIES: readonly (readonly [name: string, file: string, description: string])[] = [
  ["procwire", "src/index.ts", "The library for Node."],
  [
    "procwire/client",
    "src/client/browser.ts",
    "The client for browsers. It also exports the process and client types above, and all types inside of their signatures.",
  ],
  ["procwire/agents", "src/adapters/agents.ts", "The tools for the OpenAI Agents SDK."],
  ["procwire/ai", "src/adapters/ai.ts", "The tools for the AI SDK."],
];

export function apiDocument(): string {
  const { options } = ts.parseJsonConfigFileContent(
    ts.readConfigFile("tsconfig.json", ts.sys.readFile).config,
    ts.sys,
    ".",
  );
  const program = ts.createProgram(
    ENTRIES.map(([, file]) => file),
    { ...options, noEmit: true },
  );
  const checker = program.getTypeChecker();
  const documented = new Set<ts.Symbol>();
  const lines = [
    "# API reference",
    "",
    "Generated from the types and their comments by `npm run api-doc`. [client.md](client.md) and [embed.md](embed.md) have examples.",
    "",
    "| group | names |",
    "|---|---|",
    ...Object.entries(API_GROUPS).map(([group, names]) => `| ${link(group)} | ${names.map(link).join(", ")} |`),
  ];
  for (const [name, file, description] of ENTRIES) {
    const source = program.getSourceFile(file);
    const entry = source && checker.getSymbolAtLocation(source);
    if (!entry) throw new Error(`${file}: no exports`);
    const exported = new Map(checker.getExportsOfModule(entry).map((symbol) => [symbol.name, symbol]));
    lines.push("", `## ${name}`, "", description);
    for (const [group, names] of groupsOf(name, [...exported.keys()])) {
      if (group !== "") lines.push("", `## ${group}`);
      for (const exportedName of names) {
        const symbol = exported.get(exportedName);
        if (!symbol) throw new Error(`${file} does not export ${exportedName}`);
        lines.push(...documentOnce(symbol));
      }
    }
  }
  return `${lines.join("\n")}\n`;

  function documentOnce(exported: ts.Symbol): string[] {
    const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
    if (PROTOCOL_TABLE.has(symbol.name)) return [];
    if (!documented.has(symbol)) {
      documented.add(symbol);
      return described(exported.name, symbol, checker);
    }
    // A second name of the same declaration, such as an alias of the v0 types.
    return exported.name === symbol.name ? [] : ["", `### ${exported.name}`, "", `Alias of \`${symbol.name}\`.`];
  }
}

/** Returns the names of an entry by group. The main entry has its own groups; new names of the client are the last group. */
function groupsOf(entry: string, exported: readonly string[]): [group: string, names: readonly string[]][] {
  if (entry === "procwire") return Object.entries(API_GROUPS);
  if (entry !== "procwire/client") return [["", exported.toSorted()]];
  const grouped = new Set([...Object.values(API_GROUPS), ...Object.values(CLIENT_GROUPS)].flat());
  const rest = exported.filter((name) => !grouped.has(name) && !PROTOCOL_TABLE.has(name)).toSorted();
  const present = Object.entries(CLIENT_GROUPS).map(([group, names]): [string, readonly string[]] => [
    group,
    names.filter((name) => exported.includes(name)),
  ]);
  return rest.length === 0 ? present : [...present, ["Other types", rest]];
}

/** Returns a link to a heading of this document. */
function link(heading: string): string {
  return `[${heading}](#${heading.toLowerCase().replaceAll(" ", "-")})`;
}

/** The method table and its schemas, which PROTOCOL.md documents. */
const PROTOCOL_TABLE: ReadonlySet<string> = new Set([
  ...["methods", "serverNotifications", "environmentInfo", "EXTENSIONS", "MethodSpec", "NotificationSpec"],
  ...["Schema", "ObjectSchema", "Fields", "Infer"],
]);

function described(name: string, symbol: ts.Symbol, checker: ts.TypeChecker): string[] {
  const declaration = symbol.declarations?.[0];
  if (!declaration) return [];
  const lines = ["", `### ${name}`, ""];
  const doc = docOf(symbol, checker);
  if (doc !== "") lines.push(doc, "");
  if (ts.isClassDeclaration(declaration)) {
    const type = checker.getTypeOfSymbolAtLocation(symbol, declaration);
    const statics = checker.getPropertiesOfType(type).filter(({ name: member }) => member !== "prototype");
    const members = checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(symbol));
    lines.push("Class.", "", ...membersOf(statics, "static ", checker), ...membersOf(members, "", checker));
  } else if (ts.isInterfaceDeclaration(declaration)) {
    const members = checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(symbol));
    lines.push("Interface.", "", ...membersOf(members, "", checker));
  } else if (ts.isTypeAliasDeclaration(declaration)) {
    const type = checker.getDeclaredTypeOfSymbol(symbol);
    const text = declaration.type.getText();
    const isInferred = /^(Infer|ParamsOf|ResultOf)</.test(text);
    // `typeof` names a value that is not exported.
    const isResolved = isInferred || /\btypeof\b/.test(text);
    // A class that is exported under another name, with a value of the same name for its static members.
    if (type.isClass()) lines.push(...aliasedClass(symbol, type, checker));
    else if (isInferred && type.flags & ts.TypeFlags.Object) lines.push("Object.", "", ...fieldsOf(type, checker));
    else if (ts.isUnionTypeNode(declaration.type) && text.includes("/**")) {
      lines.push("One of:", "", ...declaration.type.types.map(documentedVariant));
    } else lines.push(`Type: ${code(isResolved ? typeText(type, checker, ts.TypeFormatFlags.InTypeAlias) : text)}`);
  } else {
    const type = checker.getTypeOfSymbolAtLocation(symbol, declaration);
    const record = recordText(declaration, type, checker);
    if (record !== null) return [...lines, code(`${name}: ${record}`)];
    lines.push(
      signatures(type, checker)
        .map((signature) => code(`${name}${signature}`))
        .join("\n\n"),
    );
  }
  return lines;
}

function aliasedClass(alias: ts.Symbol, type: ts.Type, checker: ts.TypeChecker): string[] {
  const { valueDeclaration } = alias;
  const value = valueDeclaration && checker.getTypeOfSymbolAtLocation(alias, valueDeclaration);
  const statics = value ? membersOf(checker.getPropertiesOfType(value), "static ", checker) : [];
  const doc = docOf(alias, checker) === "" ? docOf(type.symbol, checker) : "";
  const members = membersOf(checker.getPropertiesOfType(type), "", checker);
  return [...(doc === "" ? [] : [doc, ""]), "Class.", "", ...statics, ...members];
}

/** Returns the keys and the element type of a constant that `satisfies Record<string, T>`, or null for other constants. */
function recordText(declaration: ts.Declaration, type: ts.Type, checker: ts.TypeChecker): string | null {
  const initializer = ts.isVariableDeclaration(declaration) ? declaration.initializer : undefined;
  if (!initializer || !ts.isSatisfiesExpression(initializer)) return null;
  const [, element] = /^Record<string, (\w+)>$/.exec(initializer.type.getText()) ?? [];
  if (element === undefined) return null;
  const members = checker.getPropertiesOfType(type).map(({ name }) => `${name}: ${element}`);
  return `{ ${members.join("; ")} }`;
}

/** Returns the fields of an object type that is inferred from a schema. */
function fieldsOf(type: ts.Type, checker: ts.TypeChecker): string[] {
  return checker.getPropertiesOfType(type).map((field) => {
    const optional = field.flags & ts.SymbolFlags.Optional ? "?" : "";
    const text = typeText(checker.getTypeOfSymbol(field), checker);
    return documentedMember(`${field.name}${optional}: ${text}`, field, checker);
  });
}

/** Returns the line of a union member, with the comment before it. */
function documentedVariant(variant: ts.TypeNode): string {
  const source = variant.getSourceFile().text;
  const start = variant.getFullStart();
  const before = source.slice(start, variant.getStart());
  const previous = source.slice(0, start);
  const leading = /\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\s*\|?\s*$/.exec(`${previous}${before}`)?.[1] ?? "";
  const doc = leading.replaceAll(/\s*\n\s*\*\s*/g, " ").trim();
  return `- ${code(variant.getText())}${doc === "" ? "" : `: ${doc}`}`;
}

function documentedMember(text: string, member: ts.Symbol, checker: ts.TypeChecker): string {
  const doc = docOf(member, checker).split("\n\n")[0]?.replaceAll("\n", " ") ?? "";
  return `- ${code(text)}${doc === "" ? "" : `: ${doc}`}`;
}

function membersOf(members: ts.Symbol[], prefix: string, checker: ts.TypeChecker): string[] {
  return members.flatMap((member) => {
    const declaration = member.valueDeclaration ?? member.declarations?.[0];
    // Omits private members and members of built-in types.
    if (!declaration || declaration.getSourceFile().isDeclarationFile || !isPublic(member, declaration)) return [];
    const type = checker.getTypeOfSymbolAtLocation(member, declaration);
    const optional = member.flags & ts.SymbolFlags.Optional ? "?" : "";
    const calls = type.getCallSignatures().length > 0 && !ts.isPropertySignature(declaration);
    const texts = calls
      ? signatures(type, checker).map((signature) => `${prefix}${member.name}${optional}${signature}`)
      : [`${prefix}${member.name}${optional}: ${annotationOf(declaration) ?? typeText(type, checker)}`];
    return texts.map((text) => documentedMember(text, member, checker));
  });
}

/** Returns the type as written in the source, which is shorter than the type that the compiler derives. */
function annotationOf(declaration: ts.Node): string | null {
  const type =
    ts.isPropertyDeclaration(declaration) ||
    ts.isPropertySignature(declaration) ||
    ts.isParameter(declaration) ||
    ts.isVariableDeclaration(declaration) ||
    ts.isFunctionLike(declaration)
      ? declaration.type
      : undefined;
  return type?.getText() ?? null;
}

function isPublic(member: ts.Symbol, declaration: ts.Declaration): boolean {
  if (member.name.startsWith("__@") || member.name.startsWith("#")) return false;
  if (member.getJsDocTags().some(({ name }) => name === "internal")) return false;
  const hidden = ts.ModifierFlags.Private | ts.ModifierFlags.Protected;
  return (ts.getCombinedModifierFlags(declaration) & hidden) === 0;
}

function signatures(type: ts.Type, checker: ts.TypeChecker): string[] {
  const calls = type.getCallSignatures();
  if (calls.length === 0) return [`: ${typeText(type, checker)}`];
  return calls.map((call) => {
    const parameters = call.getParameters().map((parameter) => parameterText(parameter, checker));
    const result = annotationOf(call.getDeclaration()) ?? typeText(checker.getReturnTypeOfSignature(call), checker);
    const generics = call.getDeclaration().typeParameters?.map((parameter) => parameter.getText()) ?? [];
    return `${generics.length > 0 ? `<${generics.join(", ")}>` : ""}(${parameters.join(", ")}): ${result}`;
  });
}

/** Returns name and type of a parameter. A destructured parameter has the name `options`. */
function parameterText(parameter: ts.Symbol, checker: ts.TypeChecker): string {
  const declaration = parameter.valueDeclaration;
  if (!declaration || !ts.isParameter(declaration)) return parameter.name;
  const name = ts.isIdentifier(declaration.name) ? declaration.name.text : "options";
  const rest = declaration.dotDotDotToken ? "..." : "";
  const optional = declaration.questionToken || declaration.initializer ? "?" : "";
  const type =
    annotationOf(declaration) ?? typeText(checker.getTypeOfSymbolAtLocation(parameter, declaration), checker);
  return `${rest}${name}${optional}: ${type}`;
}

/** Returns a type in full. With `InTypeAlias`, the compiler writes out the members of a type that has a name. */
function typeText(type: ts.Type, checker: ts.TypeChecker, flags = ts.TypeFormatFlags.None): string {
  const text = checker.typeToString(type, undefined, ts.TypeFormatFlags.NoTruncation | flags);
  return /\b(InferFields|Flat)</.test(text) ? inferredText(type, checker) : text;
}

/** Writes out a type that is inferred from a schema, which the compiler shows by its schema. */
function inferredText(type: ts.Type, checker: ts.TypeChecker): string {
  if (type.isUnion()) {
    const members = type.types.filter(({ flags }) => !(flags & ts.TypeFlags.Undefined));
    return members.map((member) => typeText(member, checker)).join(" | ");
  }
  const [element] = checker.isArrayType(type) ? checker.getTypeArguments(type as ts.TypeReference) : [];
  if (element) return `${typeText(element, checker)}[]`;
  const fields = checker.getPropertiesOfType(type).map((field) => {
    const optional = field.flags & ts.SymbolFlags.Optional ? "?" : "";
    return `${field.name}${optional}: ${typeText(checker.getTypeOfSymbol(field), checker)}`;
  });
  return `{ ${fields.join("; ")} }`;
}

function docOf(symbol: ts.Symbol, checker: ts.TypeChecker): string {
  return ts.displayPartsToString(symbol.getDocumentationComment(checker)).trim();
}

function code(text: string): string {
  const flat = text
    .replaceAll(/\/\*\*[\s\S]*?\*\//g, "")
    .replaceAll(/\s+/g, " ")
    .replaceAll(/import\("[^"]*"\)\./g, "")
    .replaceAll(/(^|: )\| /g, "$1");
  return `\`${flat.replaceAll("`", "'")}\``;
}

if (import.meta.main) writeFileSync(DOCUMENT, apiDocument());
