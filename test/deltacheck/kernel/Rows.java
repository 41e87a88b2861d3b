import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.delta.kernel.Scan;
import io.delta.kernel.ScanBuilder;
import io.delta.kernel.Snapshot;
import io.delta.kernel.Table;
import io.delta.kernel.data.ColumnVector;
import io.delta.kernel.data.ColumnarBatch;
import io.delta.kernel.data.FilteredColumnarBatch;
import io.delta.kernel.data.Row;
import io.delta.kernel.defaults.engine.DefaultEngine;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.engine.FileReadResult;
import io.delta.kernel.expressions.And;
import io.delta.kernel.expressions.Column;
import io.delta.kernel.expressions.In;
import io.delta.kernel.expressions.Literal;
import io.delta.kernel.expressions.Predicate;
import io.delta.kernel.internal.InternalScanFileUtils;
import io.delta.kernel.internal.data.ScanStateRow;
import io.delta.kernel.internal.util.Utils;
import io.delta.kernel.types.*;
import io.delta.kernel.utils.CloseableIterator;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;

/**
 * Reads Delta tables with delta-kernel and its default engine. Each line of the input is a request in JSON, and each line of
 * the output is its answer: the rows of a table, or the coordinates of the rows that are left when a predicate has skipped
 * files and row groups. readers.py has the other side.
 */
public class Rows {
  private static final Engine ENGINE = DefaultEngine.create(new Configuration());

  public static void main(String[] args) throws Exception {
    ObjectMapper json = new ObjectMapper();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      Map<String, Object> answer;
      try {
        answer = Map.of("result", answer(json.readTree(line)));
      } catch (Throwable e) {
        answer = Map.of("error", e.toString());
      }
      out.println(json.writeValueAsString(answer));
    }
  }

  private static Object answer(JsonNode request) throws Exception {
    if (request.get("ask").asText().equals("version")) {
      return Table.class.getProtectionDomain().getCodeSource().getLocation().getPath().replaceAll(".*-api-(.*)\\.jar", "$1");
    }
    Table table = Table.forPath(ENGINE, request.get("table").asText());
    Snapshot snapshot =
        request.has("version")
            ? table.getSnapshotAsOfVersion(ENGINE, request.get("version").asLong())
            : table.getLatestSnapshot(ENGINE);
    StructType schema = snapshot.getSchema();
    if (request.get("ask").asText().equals("rows")) {
      return read(snapshot.getScanBuilder(), schema);
    }
    Predicate predicate = predicate(request.get("predicate"));
    StructType coordinates = new StructType(List.of(schema.get("_kafka_partition"), schema.get("_kafka_offset")));
    return read(snapshot.getScanBuilder().withFilter(predicate).withReadSchema(coordinates), coordinates);
  }

  private static List<Object> read(ScanBuilder builder, StructType schema) throws Exception {
    List<Object> rows = new ArrayList<>();
    Scan scan = builder.build();
    Row state = scan.getScanState(ENGINE);
    StructType physical = ScanStateRow.getPhysicalDataReadSchema(state);
    try (CloseableIterator<FilteredColumnarBatch> files = scan.getScanFiles(ENGINE)) {
      while (files.hasNext()) {
        try (CloseableIterator<Row> list = files.next().getRows()) {
          while (list.hasNext()) {
            readFile(scan, state, list.next(), physical, schema, rows);
          }
        }
      }
    }
    return rows;
  }

  private static void readFile(Scan scan, Row state, Row file, StructType physical, StructType schema, List<Object> rows)
      throws Exception {
    CloseableIterator<FileReadResult> parts =
        ENGINE
            .getParquetHandler()
            .readParquetFiles(
                Utils.singletonCloseableIterator(InternalScanFileUtils.getAddFileStatus(file)), physical, scan.getRemainingFilter());
    try (CloseableIterator<FilteredColumnarBatch> batches =
        Scan.transformPhysicalData(ENGINE, state, file, parts.map(FileReadResult::getData))) {
      while (batches.hasNext()) {
        FilteredColumnarBatch batch = batches.next();
        ColumnarBatch data = batch.getData();
        Optional<ColumnVector> chosen = batch.getSelectionVector();
        for (int i = 0; i < data.getSize(); i++) {
          if (chosen.isPresent() && (chosen.get().isNullAt(i) || !chosen.get().getBoolean(i))) {
            continue;
          }
          List<Object> row = new ArrayList<>();
          for (int c = 0; c < schema.length(); c++) {
            row.add(value(data.getColumnVector(c), i));
          }
          rows.add(row);
        }
      }
    }
  }

  /** Returns a value in the form of values.py. */
  private static Object value(ColumnVector v, int i) {
    if (v.isNullAt(i)) {
      return null;
    }
    DataType type = v.getDataType();
    if (type instanceof StructType) {
      List<Object> fields = new ArrayList<>();
      for (int f = 0; f < ((StructType) type).length(); f++) {
        fields.add(value(v.getChild(f), i));
      }
      return fields;
    }
    if (type instanceof ArrayType) {
      return elements(v.getArray(i).getElements(), v.getArray(i).getSize());
    }
    if (type instanceof MapType) {
      int size = v.getMap(i).getSize();
      List<Object> keys = elements(v.getMap(i).getKeys(), size);
      List<Object> items = elements(v.getMap(i).getValues(), size);
      List<List<Object>> pairs = new ArrayList<>();
      for (int k = 0; k < size; k++) {
        List<Object> pair = new ArrayList<>();
        pair.add(keys.get(k));
        pair.add(items.get(k));
        pairs.add(pair);
      }
      pairs.sort(Comparator.comparing(p -> text(p.get(0))));
      return pairs;
    }
    if (type instanceof DecimalType) {
      return v.getDecimal(i).setScale(((DecimalType) type).getScale()).toPlainString();
    }
    switch (type.toString()) {
      case "string":
        return v.getString(i);
      case "binary":
        return HexFormat.of().formatHex(v.getBinary(i));
      case "boolean":
        return v.getBoolean(i);
      case "byte":
        return v.getByte(i);
      case "short":
        return v.getShort(i);
      case "integer":
      case "date":
        return v.getInt(i);
      case "long":
      case "timestamp":
      case "timestamp_ntz":
        return v.getLong(i);
      case "float":
        return bits(v.getFloat(i));
      case "double":
        return bits(v.getDouble(i));
      default:
        throw new IllegalArgumentException("type " + type);
    }
  }

  private static List<Object> elements(ColumnVector v, int size) {
    List<Object> list = new ArrayList<>();
    for (int i = 0; i < size; i++) {
      list.add(value(v, i));
    }
    return list;
  }

  private static String text(Object key) {
    try {
      return new ObjectMapper().writeValueAsString(key);
    } catch (Exception e) {
      throw new IllegalArgumentException(e);
    }
  }

  private static String bits(double x) {
    return Double.isNaN(x) ? "nan" : String.format("%016x", Double.doubleToRawLongBits(x));
  }

  private static Predicate predicate(JsonNode p) {
    List<String> path = new ArrayList<>();
    p.get("path").forEach(name -> path.add(name.asText()));
    Column column = new Column(path.toArray(new String[0]));
    List<Literal> values = new ArrayList<>();
    p.get("values").forEach(v -> values.add(literal(p.get("kind").asText(), v)));
    switch (p.get("op").asText()) {
      case "null":
        return new Predicate("IS_NULL", column);
      case "notnull":
        return new Predicate("IS_NOT_NULL", column);
      case "in":
        return new In(column, List.copyOf(values));
      case "between":
        return new And(new Predicate(">=", column, values.get(0)), new Predicate("<=", column, values.get(1)));
      default:
        return new Predicate(p.get("op").asText(), column, values.get(0));
    }
  }

  private static Literal literal(String kind, JsonNode v) {
    if (kind.startsWith("decimal")) {
      String[] size = kind.substring(8, kind.length() - 1).split(",");
      return Literal.ofDecimal(new BigDecimal(v.asText()), Integer.parseInt(size[0]), Integer.parseInt(size[1]));
    }
    switch (kind) {
      case "string":
        return Literal.ofString(v.asText());
      case "boolean":
        return Literal.ofBoolean(v.asBoolean());
      case "tinyint":
        return Literal.ofByte((byte) v.asInt());
      case "smallint":
        return Literal.ofShort((short) v.asInt());
      case "int":
        return Literal.ofInt(v.asInt());
      case "bigint":
        return Literal.ofLong(v.asLong());
      case "date":
        return Literal.ofDate(v.asInt());
      case "timestamp":
        return Literal.ofTimestamp(v.asLong());
      case "timestamp_ntz":
        return Literal.ofTimestampNtz(v.asLong());
      case "float":
        return Literal.ofFloat((float) number(v.asText()));
      case "double":
        return Literal.ofDouble(number(v.asText()));
      default:
        throw new IllegalArgumentException("kind " + kind);
    }
  }

  private static double number(String bits) {
    return bits.equals("nan") ? Double.NaN : Double.longBitsToDouble(Long.parseUnsignedLong(bits, 16));
  }
}
