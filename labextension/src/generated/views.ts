// Made from loom_kernel/views by `python -m loom_kernel.views.schema --typescript`. Do not edit.

export interface BoxShot {
  id: string;
  label: string;
  title: string;
  kind: string;
  status: string;
  x: number;
  y: number;
  w: number;
  h: number;
  note: string;
  since: number | null;
  until: number | null;
  count: number;
  progress: number | null;
  attempts: number;
  durationS: number | null;
  fromJournal: boolean;
  failed: number;
}

export interface ButtonShot {
  action: string;
  label: string;
  primary: boolean;
}

export interface CountShot {
  total: number;
  done: number;
  failed: number;
  fromJournal: number;
}

export interface DeltaShot {
  base: number;
  serial: number;
  top: Record<string, unknown>;
  graph?: Record<string, unknown>;
  gone?: string[];
  new?: NewShot[];
  boxes?: ([number, Record<string, unknown>])[];
  cut?: ([number, number])[];
  edges?: ([number, number, string])[];
}

export interface DetailShot {
  node: string;
  label: string;
  kind: string;
  status: string;
  where: string;
  facts: string[];
  inputs: string;
  output: string;
  said: string;
  shown: Shown[];
  failure: FailureShot | null;
  log: string[];
  logLeftOut: number;
  members: MemberShot[];
  membersLeftOut: number;
}

export interface EdgeShot {
  a: number;
  b: number;
  path: string;
}

export interface FailureShot {
  type: string;
  message: string;
  lines: LineShot[];
  notes: string[];
  hint: string;
  node: string;
}

export interface FoundShot {
  text: string;
  boxes: string[];
  nodes: MemberShot[];
  leftOut: number;
}

export interface GraphShot {
  hash: string;
  width: number;
  height: number;
  boxes: BoxShot[];
  edges: EdgeShot[];
}

export interface LineShot {
  place: string;
  line: number;
  text: string;
}

export interface MemberShot {
  id: string;
  label: string;
  status: string;
  note: string;
}

export interface NewShot {
  at: number;
  box: BoxShot;
}

export interface PartShot {
  kind: string;
  words: string;
  seconds: number;
}

export interface QuestionShot {
  node: string;
  prompt: string;
  generation: number;
  kind: string;
  message: string;
  options: string[];
  initial: unknown;
  schema: Record<string, unknown>;
  shown: Shown[];
  hint: string;
  error: string;
  deadline: number | null;
  defaultWords: string;
}

export interface RowShot {
  id: string;
  label: string;
  status: string;
  critical: boolean;
  spans: ([string, number, number])[];
}

export interface Shown {
  kind: string;
  text?: string;
  columns?: string[];
  rows?: string[][];
  total?: number;
}

export interface Snapshot {
  revision: number;
  run: string;
  workflow: string;
  status: string;
  words: string;
  tone: string;
  atRest: boolean;
  ended: boolean;
  counts: CountShot;
  nodes: number;
  now: number;
  activeS: number;
  activeSince: number | null;
  startedAt: number | null;
  spent: string;
  graph: GraphShot;
  questions: QuestionShot[];
  failure: FailureShot | null;
  notice: string;
  report: string;
  result: string;
  logLines: number;
  buttons: ButtonShot[];
  serial: number;
}

export interface TimesShot {
  start: number;
  totalS: number;
  critical: string;
  parts: PartShot[];
  rows: RowShot[];
  leftOut: number;
}
