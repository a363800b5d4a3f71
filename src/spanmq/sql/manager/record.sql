-- Remembers what this run made: verify compares the catalogs with it.
insert into spanmq_core.release (version, functions_checksum) values (:version, :functions_checksum);

delete from spanmq_core.object_checksum;

insert into spanmq_core.object_checksum (kind, name, checksum, server_major)
select object.kind, object.name, object.checksum, current_setting('server_version_num')::int / 10000
from (:snapshot) object
where object.kind || ' ' || object.name <> all (string_to_array(current_setting('spanmq.foreign_objects'), E'\n'));
